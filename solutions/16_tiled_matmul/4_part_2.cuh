#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
#pragma unroll
            for (int j = 0; j < TILES_8; ++j)
                mma_16x8x16<T>(sums[i][j], a_parts[set][i], b_parts[set][j / 2][j % 2 * 2],
                               b_parts[set][j / 2][j % 2 * 2 + 1]);
