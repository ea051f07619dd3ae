; Two point masses on massless rods; theta1 from the downward vertical, theta2 relative to it.
(SYSTEM
  (NAME "double_pendulum")
  (GRAVITY 0 0 -9.81)
  (RX "theta1" (NAME "upper")
    (TZ -1 (NAME "elbow") (MASS 1)
      (RX "theta2" (NAME "lower")
        (TZ -1 (NAME "tip") (MASS 1))))))
