#define ASK(s, u) target_law((s)->k, (s)->x, u)

int target_law(int k, const real *x, real *u)
{
    real dx[LAW_NX];
    int row = k - (LAW_K0), r, c;
    if (row < 0 || (LAW_AFTER == ENDS && row >= LAW_ROWS)) return TARGET_OUTSIDE;
    if (row >= LAW_ROWS) row = LAW_AFTER == HOLDS ? LAW_ROWS - 1 : row % LAW_ROWS;
    difference(x_d[row], x, dx);
    for (r = 0; r < NU; ++r) {
        real sum = 0;
        for (c = 0; c < LAW_NX; ++c) sum += gain[LAW_GAINS == 1 ? 0 : row][r * LAW_NX + c] * dx[c];
        u[r] = u_d[row][r] - sum;
#if OFFSET
        if (offset_at[r] >= 0) u[r] -= x[offset_at[r]];
#endif
    }
    return 0;
}
