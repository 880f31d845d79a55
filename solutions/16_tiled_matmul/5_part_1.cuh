    for (int tile = 0; tile < STAGES; ++tile) copy_tiles(tile, tile);
    cp_async_wait<STAGES - 1>();
    __syncthreads();
    load_fragments(0, 0, 0);
    for (int first_tile = 0; first_tile < tiles; first_tile += STAGES) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            int tile = first_tile + stage;
            if (tile >= tiles) break;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step < STEPS - 1)
                    load_fragments((step + 1) % 2, stage, step + 1);
                else
                    load_fragments(0, (stage + 1) % STAGES, 0);
                if (step == STEPS - 2) {
                    // This warp has all of this tile in registers; after the barrier every warp
                    // has, so its stage may be overwritten. The next tile has arrived as well.
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    copy_tiles(tile + STAGES, stage);
                }
                multiply(step % 2);
            }
        }
    }
    cp_async_wait<0>();
    __syncthreads();
