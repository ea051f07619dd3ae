void target_start(target_state *s, const real *x)
{
    static const real usual[NX] = USUAL_START;
    int i;
    s->k = FIRST_SAMPLE;
    for (i = 0; i < NX; ++i) s->x[i] = x ? x[i] : usual[i];
    begin(s);
}

int target_output(target_state *s, const real *y, real *u)
{
    const int status = correct(s, y);
    return status | command(s, u);
}

int target_advance(target_state *s, const real *u)
{
    int status = predict(s, u);
    if (s->k < INT_MAX) ++s->k; /* the counter saturates */
    if (REPEATS && s->k >= FIRST_SAMPLE + REPEATS) s->k -= REPEATS;
#ifdef PLANNED
    status |= ahead(s);
#endif
    return status;
}

void target_measure(const real *x, real *y)
{
    sensed(x, y);
}

unsigned long target_memory(void)
{
    return (unsigned long)sizeof(target_state);
}
