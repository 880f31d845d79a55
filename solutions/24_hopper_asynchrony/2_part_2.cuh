    size_t sizes[] = {static_cast<size_t>(columns), static_cast<size_t>(rows)};
    size_t stride = columns;
    int box[] = {COLUMNS, ROWS};
    error = make_tensor_map(&map, x, sizes, &stride, box, Swizzle::SPAN_128);
