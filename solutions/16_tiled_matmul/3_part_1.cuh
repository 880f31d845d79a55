    constexpr int ROWS = CHUNKS < 8 ? 8 / CHUNKS : 1;  // per 128 bytes, the width of all banks
    constexpr int MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    place = row * CHUNKS + (chunk ^ (row / ROWS & MASK));
