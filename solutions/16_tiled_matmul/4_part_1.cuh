        int row = lane % 16, half = lane / 16;
        int a_column = step * 2 + half, b_column = warp_column / CHUNK + half;  // counted in chunks
#pragma unroll
        for (int j = 0; j < TILES_8 / 2; ++j)
            ldmatrix_x4_trans(
                b_parts[set][j],
                b_tile + swizzle<B_CHUNKS>(step * 16 + row, b_column + j * 2) * CHUNK);
#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
            ldmatrix_x4(a_parts[set][i],
                        a_tile + swizzle<A_CHUNKS>(warp_row + i * 16 + row, a_column) * CHUNK);
