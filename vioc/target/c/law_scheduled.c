#define ASK(s, u) target_law((s)->k, (s)->x, u)

int target_law(int k, const real *x, real *u)
{
    real at, w, dx[LAW_NX], X[LAW_NX];
    int i = 0, r, c;
    (void)k;
    schedule(x, &at);
    if (!all_finite(1, &at)) return TARGET_NOT_FINITE;
    while (i < LAW_ROWS - 2 && at >= points[i + 1]) ++i;
    w = (at - points[i]) / (points[i + 1] - points[i]);
    w = w < 0 ? 0 : w > 1 ? 1 : w;
    difference(x_d[i], x_d[i + 1], dx);
    for (c = 0; c < LAW_NX; ++c) X[c] = x_d[i][c] + w * dx[c];
    difference(X, x, dx);
    for (r = 0; r < NU; ++r) {
        real sum = 0;
        for (c = 0; c < LAW_NX; ++c) {
            const real *a = &gain[i][r * LAW_NX + c], *b = &gain[i + 1][r * LAW_NX + c];
            sum += (*a + w * (*b - *a)) * dx[c];
        }
        u[r] = u_d[i][r] + w * (u_d[i + 1][r] - u_d[i][r]) - sum;
    }
    return 0;
}
