/* Input of the law, clipped to its bounds and its rate. */
static int command(target_state *s, real *u)
{
    real wanted[NU];
    const int status = ASK(s, wanted);
    int i;
    if (status & ~TARGET_NO_PLAN) return status;
    if (!all_finite(NU, wanted)) return TARGET_NOT_FINITE;
    for (i = 0; i < NU; ++i) {
        real value = wanted[i];
#if LIMITED
        if (value < least[i]) value = least[i];
        if (value > most[i]) value = most[i];
#endif
#if RATED
        if (s->moved) {
            if (value < s->before[i] - change[i]) value = s->before[i] - change[i];
            if (value > s->before[i] + change[i]) value = s->before[i] + change[i];
        }
        s->before[i] = value;
#endif
        u[i] = value;
    }
#if RATED
    s->moved = 1;
#endif
    return status;
}
