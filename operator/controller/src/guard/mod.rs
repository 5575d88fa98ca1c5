//! The guard: whether the rules that vouch for decisions are in force, without a gap, and since when. While they are
//! not, nothing is honoured.
//!
//! It may not install or repair anything, and never guesses: what cannot be read is not in force.
//!
//! * `keep`: the task that watches, looks, waits and tries a forged request
//! * `confirm`: the question right before something is honoured
//! * `memory`: what must outlive this process

mod confirm;
mod keep;
mod memory;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use signoff_guard::Marks;
use tokio::sync::watch;

pub(crate) use confirm::Confirm;
pub(crate) use keep::{Keeper, Misled};

/// How an operator knows that decisions are vouched for.
#[derive(Clone, Debug)]
pub enum GuardMode {
    /// By reading what is in force.
    Checked(Box<GuardSettings>),
    /// By being told so, with this epoch: for tests without admission.
    Assumed(String),
}

/// What an administrator decides about the guard.
#[derive(Clone, Debug, Default)]
pub struct GuardSettings {
    /// Honour nothing while other people's webhooks or mutating policies could change a vote on its way.
    pub strict: bool,
    /// The way to each single API server, where they can be reached one by one; else only the one that answers.
    pub each_server: Option<kube::Config>,
}

/// How the guard stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was read yet.
    Unknown,
    /// Something was changed or cannot be reached: it is being looked at. Nothing is honoured meanwhile, and nobody
    /// is alarmed.
    Looking(Arc<str>),
    /// In force as shipped.
    InForce(Guarded),
    /// Not in force: each entry says what is wrong, with its remedy.
    Broken(Arc<[String]>),
}

/// The rules in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Moves whenever any of the guard's objects was changed or made anew.
    pub epoch: Arc<str>,
    /// Since when, by the API server's clock: what was created earlier may not have been vouched for.
    pub since: Timestamp,
    /// Other people's webhooks and policies that could change a vote on its way, by kind and name.
    pub foreign: Arc<[String]>,
    /// What tells whether an object was changed since; none where the guard is assumed.
    ground: Option<Arc<Ground>>,
}

/// What the guard rests on.
#[derive(Debug, PartialEq, Eq)]
struct Ground {
    marks: Marks,
    /// Whether mutating policies are served.
    mutating: bool,
}

/// For people.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the admission policies have not been read yet"),
            Self::Looking(why) => write!(f, "no decision is honoured for the moment: {why}"),
            Self::InForce(Guarded { epoch, foreign, .. }) => {
                write!(f, "the admission policies are in force (epoch {epoch})")?;
                if foreign.is_empty() { Ok(()) } else { write!(f, "; {}", foreign_words(foreign)) }
            }
            Self::Broken(why) => write!(f, "no decision is honoured: {}", why.join("; ")),
        }
    }
}

/// One sentence about other people's webhooks and policies.
pub(crate) fn foreign_words(foreign: &[String]) -> String {
    format!(
        "these can change a vote on its way, so look at what is stored (kubectl approve does): {}",
        foreign.join(", ")
    )
}

impl Standing {
    fn broken(why: impl Into<String>) -> Self {
        Self::Broken([why.into()].into())
    }

    fn looking(why: impl Into<Arc<str>>) -> Self {
        Self::Looking(why.into())
    }

    /// Whether it is known how the guard stands.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::InForce(_) | Self::Broken(_))
    }

    /// Whether decisions are vouched for.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self, Self::InForce(_))
    }
}

/// Makes a standing known, where it is news.
fn tell(standing: &watch::Sender<Standing>, now: Standing) {
    standing.send_if_modified(|old| {
        let news = *old != now;
        if news {
            match &now {
                Standing::InForce(_) => tracing::info!("{now}"),
                Standing::Unknown | Standing::Looking(_) => tracing::debug!("{now}"),
                Standing::Broken(_) => tracing::warn!("{now}"),
            }
            *old = now;
        }
        news
    });
}
