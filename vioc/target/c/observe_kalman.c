/* x += L[k] (y - g(x)). */
static int correct(target_state *s, const real *y)
{
    real e[NY];
    const int row = FILTER_ROWS == 1 ? 0 : s->k - FILTER_K0;
    int i, j;
    if (row < 0 || row >= FILTER_ROWS) return TARGET_OUTSIDE;
    innovation(s->x, y, e);
    if (!all_finite(NY, e)) return TARGET_NOT_FINITE; /* no measurement: the prediction is kept */
    for (i = 0; i < NX; ++i)
        for (j = 0; j < NY; ++j) s->x[i] += filter_gain[row][i * NY + j] * e[j];
    return 0;
}

static int predict(target_state *s, const real *u)
{
    real x_next[NX], multipliers[NM + 1];
    const int status = target_step(s->k, s->x, u, x_next, multipliers);
    int i;
    if (status & TARGET_SINGULAR || !all_finite(NX, x_next)) return status | TARGET_UNSOLVED;
    for (i = 0; i < NX; ++i) s->x[i] = x_next[i];
    return status;
}
