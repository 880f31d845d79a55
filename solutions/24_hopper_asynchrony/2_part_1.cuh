        mbarrier_arrive_expect(&full[stage], BOX_BYTES + WEIGHT_BYTES);
        tma_load(places[stage], map, &full[stage], box * COLUMNS, first_row);
        tma_load(weights[stage], w_map, &full[stage], box * COLUMNS);
