#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                int half = part % 2;
                const float* two = &scores[i][j + part / 2][half * 2];
                float low = exp2_approx(two[0] * flash.scale - maximum[i][half]);
                float high = exp2_approx(two[1] * flash.scale - maximum[i][half]);
                total[i][half] += low + high;
                weights[i][part] = pack2<T>(low, high);
            }
