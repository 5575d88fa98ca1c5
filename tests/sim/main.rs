//! Controllers in simulation: paused time, faults, crashes at every write.
