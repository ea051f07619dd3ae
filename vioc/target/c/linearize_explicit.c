int target_linearize(int k, const real *x, const real *u, real *x_next, real *A, real *B)
{
    const real t = (real)k * DT;
    const real d[1] = {0};
    real multipliers[NM + 1];
    result(d, x, u, &t, x_next, multipliers);
    derivatives(d, x, u, &t, NULL, NULL, NULL, NULL, A, B);
    return all_finite(NX, x_next) && all_finite(NX * NX, A) ? 0 : TARGET_UNSOLVED;
}
