; The pendulum of [S] VIII-A: L = 1/2 dq^2 + 9.8 cos q, theta from the downward vertical.
(SYSTEM
  (NAME "pendulum")
  (GRAVITY 0 0 -9.8)
  (RX "theta" (NAME "arm")
    (TZ -1 (NAME "bob") (MASS 1)))
  (JOINT-FORCE "theta" "torque"))
