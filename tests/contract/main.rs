//! Tests of contracts: what is committed, shipped and documented agrees with the code. They need no cluster.
