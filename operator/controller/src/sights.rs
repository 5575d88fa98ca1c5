//! What follows from what a watch shows: what is known is brought up to date, and whoever is concerned is looked at.
//!
//! It may not ask the API server or wait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{Approval, Workflow};
use tokio::sync::mpsc;

use crate::{
    context::Context,
    kinds::{Kind, Name},
    queue::Key,
    store::{Gone, Store},
    watch::{Sight, name_of},
};

/// A kind that is watched.
pub(crate) trait Watched: Kind {
    /// How to look at it.
    fn key(name: Name) -> Key;
    /// An object is no more.
    fn gone(context: &Context, gone: Gone);
}

impl Watched for Workflow {
    fn key(name: Name) -> Key {
        Key::Workflow(name)
    }

    fn gone(context: &Context, gone: Gone) {
        for approval in context.approvals.owned_by(&gone.uid) {
            context.look_at_approval(approval);
        }
        context.look_at_workflow(gone.name);
    }
}

impl Watched for Approval {
    fn key(name: Name) -> Key {
        Key::Approval(name)
    }

    fn gone(context: &Context, gone: Gone) {
        context.look_at_approval(gone.name);
        // A run that waits for it asks again.
        if let Some(run) = gone.owner {
            context.look_at_workflow(run);
        }
    }
}

/// How many sights are taken in one go, so that nothing else waits for long.
const AT_ONCE: usize = 64;

/// Takes a sight and those that came with it. Returns whether the first list is complete by one of them.
pub(crate) fn see_all<K: Watched>(
    context: &Context,
    store: &Store<K>,
    first: Sight<K>,
    more: &mut mpsc::Receiver<Sight<K>>,
) -> bool {
    let mut complete = see(context, store, first);
    for _ in 1..AT_ONCE {
        let Ok(sight) = more.try_recv() else { break };
        complete |= see(context, store, sight);
    }
    complete
}

/// Takes a sight. Returns whether the first list is complete by it.
fn see<K: Watched>(context: &Context, store: &Store<K>, sight: Sight<K>) -> bool {
    match sight {
        Sight::Listing => store.listing(),
        Sight::Listed(object) => {
            let name = Name::of(&*object);
            // What is over and need not be deleted needs no look.
            let idle = object.is_over() && object.due().is_none();
            let news = store.list(*object);
            if news && !idle {
                context.queue.trigger(K::key(name));
            }
        }
        Sight::AllListed(version) => {
            for gone in store.listed(&version) {
                K::gone(context, gone);
            }
            return true;
        }
        Sight::Seen(object) => {
            let name = Name::of(&*object);
            let version = object.meta().resource_version.clone().unwrap_or_default();
            if store.see(*object) {
                context.queue.seen(K::key(name), version);
            }
        }
        Sight::Gone(meta) => gone(context, store, &meta),
        Sight::Unreadable { meta, why, listed } => {
            let name = name_of(&meta);
            context.metrics.unreadable(K::KIND);
            tracing::error!(kind = K::KIND, %name, "cannot be read, so nothing is done for it: {why}");
            if listed {
                store.list_unreadable(name);
            } else {
                store.doubt(&name);
            }
        }
        Sight::Broken { why, unknown_kind: true } => {
            tracing::info!(kind = K::KIND, "waiting until the API server knows the kind: {why}");
        }
        Sight::Broken { why, .. } => tracing::warn!(kind = K::KIND, "the watch broke and is opened again: {why}"),
    }
    false
}

fn gone<K: Watched>(context: &Context, store: &Store<K>, meta: &ObjectMeta) {
    if let Some(gone) = store.gone(name_of(meta), meta.uid.as_deref().unwrap_or_default()) {
        K::gone(context, gone);
    }
}
