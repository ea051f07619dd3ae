int target_step(int k, const real *x, const real *u, real *x_next, real *multipliers)
{
    const real t = (real)k * DT;
    const real d[1] = {0};
    result(d, x, u, &t, x_next, multipliers);
    return all_finite(NX, x_next) ? 0 : TARGET_UNSOLVED;
}
