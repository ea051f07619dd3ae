/* FMI 2.0 for co-simulation: the declarations that the FMU needs. */
EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT const char *fmi2GetVersion(void) { return "2.0"; }

LOGGING(fmi2SetDebugLogging, int)

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const void *callbacks, int visible, int logging)
{
    (void)name, (void)resources, (void)callbacks, (void)visible, (void)logging;
    return type == 1 ? created(token) : NULL;
}

EXPORT void fmi2FreeInstance(void *c) { free(c); }

EXPORT int fmi2SetupExperiment(void *c, int has_tolerance, double tolerance, double start, int has_stop, double stop)
{
    (void)has_tolerance, (void)tolerance, (void)has_stop, (void)stop;
    begin(c, start);
    return GOOD;
}

ACCEPT(fmi2EnterInitializationMode)
ACCEPT(fmi2ExitInitializationMode)
ACCEPT(fmi2Terminate)
RESET(fmi2Reset)

EXPORT int fmi2GetReal(void *c, const unsigned *r, size_t n, double *v) { return get(c, r, n, v); }
EXPORT int fmi2SetReal(void *c, const unsigned *r, size_t n, const double *v) { return set(c, r, n, v); }

EXPORT int fmi2DoStep(void *c, double time, double length, int no_return)
{
    (void)no_return;
    return samples(c, time, length);
}

/* Functions that the FMU does not support. */
NONE1(fmi2GetInteger, void *)
NONE1(fmi2GetBoolean, void *)
NONE1(fmi2GetString, void *)
NONE1(fmi2SetInteger, void *)
NONE1(fmi2SetBoolean, void *)
NONE1(fmi2SetString, void *)
REFUSE1(fmi2GetFMUstate, void *)
REFUSE1(fmi2SetFMUstate, void *)
REFUSE1(fmi2FreeFMUstate, void *)
REFUSE2(fmi2GetStatus, int, void *)
REFUSE2(fmi2GetRealStatus, int, void *)
REFUSE2(fmi2GetIntegerStatus, int, void *)
REFUSE2(fmi2GetBooleanStatus, int, void *)
REFUSE2(fmi2GetStringStatus, int, void *)
REFUSE4(fmi2SetRealInputDerivatives, const unsigned *, size_t, const int *, void *)
REFUSE4(fmi2GetRealOutputDerivatives, const unsigned *, size_t, const int *, void *)
REFUSE0(fmi2CancelStep)
REFUSE2(fmi2SerializedFMUstateSize, void *, size_t *)
REFUSE3(fmi2SerializeFMUstate, void *, char *, size_t)
REFUSE3(fmi2DeSerializeFMUstate, const char *, size_t, void **)
REFUSE6(fmi2GetDirectionalDerivative, const unsigned *, size_t, const unsigned *, size_t, const double *, double *)
