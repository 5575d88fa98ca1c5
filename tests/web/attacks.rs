//! Attacks through the page on the real API server, with a witness between them. No attack uses a right that the
//! attacker would not have.

mod addresses;
mod connections;
mod cookies;
mod floods;
mod foreign;
mod identity;
mod impersonated;
mod texts;
mod tokens;
pub(crate) mod visitor;
