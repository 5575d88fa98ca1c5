//! Attempts to freeze decisions, by one object or by the operator: every other gate is decided in time, and the cause
//! is reported.

mod crowds;
mod nested;
mod planted;
mod unreadable;
mod without_quorums;
