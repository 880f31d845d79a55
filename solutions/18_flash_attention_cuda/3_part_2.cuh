        int key = tile * TILE_K + lane % 4 * 2;  // the lane's first key
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int keys = seen[warp_row + i * 16 + half * 8 + lane / 4] - key;
#pragma unroll
                for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (j * 8 + e >= keys) scores[i][j][half * 2 + e] = -INFINITY;
            }
