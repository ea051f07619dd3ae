/* Unknowns d (N) of the core of a step from x under u by ITERATIONS of Newton's method, and one more correction
   with the last factors, which measures the error. */
static int unknowns(const real *x, const real *u, const real *t, real *d)
{
    real G[N], J[N * N], error = 0;
    int pivots[N], iteration, i;
    for (i = 0; i < N; ++i) d[i] = 0;
    for (iteration = 0; iteration < ITERATIONS; ++iteration) {
        newton(d, x, u, t, G, J);
        if (factor(N, J, pivots)) return TARGET_SINGULAR;
        solve(N, J, pivots, G);
        for (i = 0; i < N; ++i) d[i] -= G[i];
    }
    equations(d, x, u, t, G);
    solve(N, J, pivots, G);
    for (i = 0; i < N; ++i) {
        d[i] -= G[i];
        if (i < MOVED) {
            const real size = F(fabs)(G[i]) / (1 + F(fabs)(x[moved[i]]));
            if (!(size <= error)) error = size; /* also if not finite */
        }
    }
    return error <= SOLVED ? 0 : TARGET_UNSOLVED;
}

int target_step(int k, const real *x, const real *u, real *x_next, real *multipliers)
{
    const real t = (real)k * DT;
    real d[N];
    const int status = unknowns(x, u, &t, d);
    if (status & TARGET_SINGULAR) return status;
    result(d, x, u, &t, x_next, multipliers);
    return status;
}
