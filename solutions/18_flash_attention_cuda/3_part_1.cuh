    int row_of_all = sequence.first_row + threadIdx.x;
    tokens[threadIdx.x] = sequence.first_query + row_of_all / group;
    heads[threadIdx.x] = kv_head * group + row_of_all % group;
    seen[threadIdx.x] = sequence.seen_by(row_of_all / group, flash.causal);
    if (threadIdx.x == num_rows - 1) num_keys = seen[threadIdx.x];
