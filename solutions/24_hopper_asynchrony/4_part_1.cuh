    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], ROWS);
        }
    }
