        uint32_t v[4];
#pragma unroll
        for (int d = 0; d < CHUNKS; d += 2) {
            ldmatrix_x4_trans(v, v_tile + ((place ^ d) + j * 8 * CHUNKS) * CHUNK);
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < ROW_TILES; ++i)
                    mma_16x8x16<T>(out[i][d + n], weights[i], v[n * 2], v[n * 2 + 1]);
        }
