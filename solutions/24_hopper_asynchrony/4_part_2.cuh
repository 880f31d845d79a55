    if (threadIdx.x == ROWS) {
        for (int box = 0; box < boxes; ++box) {
            int stage = box % STAGES;
            mbarrier_wait(&empty[stage], box / STAGES % 2 ^ 1);  // the first time immediately
            ask(box, stage);
        }
    }
    if (threadIdx.x < ROWS) {
        for (int box = 0; box < boxes; ++box) {
            int stage = box % STAGES;
            mbarrier_wait(&full[stage], box / STAGES % 2);
            add(stage);
            mbarrier_arrive(&empty[stage]);
        }
    }
