//! Attempts to freeze decisions: whatever is done to one object or to the operator, every other gate is decided in
//! time, and the error is reported.

mod crowds;
mod nested;
mod planted;
mod unreadable;
mod without_quorums;
