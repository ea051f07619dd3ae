int target_linearize(int k, const real *x, const real *u, real *x_next, real *A, real *B)
{
    const real t = (real)k * DT;
    real d[N], G_d[N * N], G_x[N * NX], G_u[N * NU + 1], E_d[NX * N], column[N], multipliers[NM + 1];
    int pivots[N], i, j, c;
    const int status = unknowns(x, u, &t, d);
    if (status & TARGET_SINGULAR) return status;
    result(d, x, u, &t, x_next, multipliers);
    derivatives(d, x, u, &t, G_d, G_x, G_u, E_d, A, B);
    if (factor(N, G_d, pivots)) return TARGET_SINGULAR;
    for (c = 0; c < NX + NU; ++c) { /* dd = -G_d^-1 G_x dx, column by column */
        for (i = 0; i < N; ++i) column[i] = c < NX ? G_x[i * NX + c] : G_u[i * NU + c - NX];
        solve(N, G_d, pivots, column);
        for (i = 0; i < NX; ++i) {
            real sum = 0;
            for (j = 0; j < N; ++j) sum += E_d[i * N + j] * column[j];
            if (c < NX) A[i * NX + c] -= sum;
            else B[i * NU + c - NX] -= sum;
        }
    }
    return status;
}
