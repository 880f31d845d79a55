"""What the file of exercise 17.2 begins with: a first draft of the loop over tiles."""

TILE_LOOP = """\
    if (first >= queries) return;
    float maximum[ROWS], total[ROWS] = {}, sums[PARTS] = {}, scores[ROWS];
    for (int r = 0; r < ROWS; ++r) maximum[r] = -INFINITY;
    for (int start = 0; start < num_keys; start += KEYS) {
        load_tile(k_tile, k, flash.k_stride, start, num_keys, sequence, flash);
        load_tile(v_tile, v, flash.v_stride, start, num_keys, sequence, flash);
        __syncthreads();
        multiply(scores, &q_tile[first], k_tile);
        for (int r = 0; r < ROWS; ++r) {
            if (start + lane >= seen[r]) scores[r] = -INFINITY;
            float larger = fmaxf(maximum[r], warp_max(scores[r]));
            float finite = larger == -INFINITY ? 0.0f : larger;  // -inf - -inf is NaN
            scores[r] = expf(scores[r] - finite);                // from here on a weight
            float of_tile = warp_sum(scores[r]);
            total[r] = total[r] * expf(maximum[r] - finite) + of_tile;
            maximum[r] = larger;
            if (of_tile > 0.0f) scores[r] /= of_tile;
        }
        for (int key = 0; key < KEYS; ++key) {
            float value[PARTS];
            for (int i = 0; i < PARTS; ++i) value[i] = to_float(v_tile[key][lane + i * WARP]);
            for (int r = 0; r < ROWS; ++r) {
                float weight = __shfl_sync(ALL_LANES, scores[r], key);
                for (int i = 0; i < PARTS; ++i) sums[i] += weight * value[i];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS && first + r < queries; ++r) {
        size_t row = (size_t)(first_token + first + r) * flash.heads + head;
        store_row(flash, row, sums, 1.0f, maximum[r] + logf(total[r]));
    }
"""
