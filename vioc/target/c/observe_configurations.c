/* State from this measurement, the previous one and the input between them. */
static int correct(target_state *s, const real *y)
{
    const real t = (real)(s->k - 1) * DT;
    real unwound[NY], rest[NX - NY];
    int i;
    if (!all_finite(NY, y)) {
        s->seen = 0;
        return TARGET_NOT_FINITE; /* the estimate is kept, and the next one restarts */
    }
    if (s->seen) {
        unwind(s->q, y, unwound);
        recover(s->q, unwound, s->u, &t, rest);
        for (i = NY; i < NX; ++i) s->x[i] = rest[i - NY];
    }
    for (i = 0; i < NY; ++i) s->x[i] = s->q[i] = y[i];
    s->seen = 1;
    return 0;
}

static int predict(target_state *s, const real *u)
{
    int i;
    for (i = 0; i < NU; ++i) s->u[i] = u[i];
    return 0;
}
