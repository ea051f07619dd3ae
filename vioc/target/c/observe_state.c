/* The state is measured. */
static int correct(target_state *s, const real *y)
{
    int i;
    if (!all_finite(NX, y)) return TARGET_NOT_FINITE;
    for (i = 0; i < NX; ++i) s->x[i] = y[i];
    return 0;
}

static int predict(target_state *s, const real *u)
{
    (void)s;
    (void)u;
    return 0;
}
