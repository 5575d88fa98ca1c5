//! Applies watch events to the store and enqueues the affected objects.
//!
//! **Invariant:** does no I/O.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{Approval, EventReason, Workflow};
use signoff_cluster::{
    kinds::{DecodedKind, Name},
    store::{DeletedObject, Found, Store},
    watch::{WatchEvent, name_of},
    workqueue::Key,
};
use signoff_expr::text;
use tokio::sync::mpsc;

use crate::{announce::AnnouncedKind, cached_objects::CachedObjects, context::Context};

/// A kind whose watch events are applied here.
pub(crate) trait Watched: AnnouncedKind {
    /// Returns the key under which an object is enqueued.
    fn key(name: Name) -> Key;
    /// Whether a key is of this kind.
    fn holds(key: &Key) -> bool;
    /// Whether the received object may have made evaluations useless.
    fn ends_evaluations(&self, objects: &CachedObjects) -> bool;
    /// Handles the deletion of an object.
    fn on_deleted(context: &Context, gone: DeletedObject);
    /// Enqueues the objects that depend on an object that cannot be decoded, or can be decoded again.
    fn enqueue_related(context: &Context, meta: &ObjectMeta);
}

impl Watched for Workflow {
    fn key(name: Name) -> Key {
        Key::Workflow(name)
    }

    fn holds(key: &Key) -> bool {
        matches!(key, Key::Workflow(_))
    }

    fn ends_evaluations(&self, objects: &CachedObjects) -> bool {
        objects.withdrawal(self).is_some() || self.spec.suspend == Some(true)
    }

    fn on_deleted(context: &Context, gone: DeletedObject) {
        for approval in context.objects.approvals.owned_by(&gone.uid) {
            context.enqueue_approval(approval);
        }
        context.enqueue_workflow(gone.name);
    }

    fn enqueue_related(context: &Context, meta: &ObjectMeta) {
        for approval in context.objects.approvals.owned_by(meta.uid.as_deref().unwrap_or_default()) {
            context.enqueue_approval(approval);
        }
        context.enqueue_workflow(name_of(meta));
    }
}

impl Watched for Approval {
    fn key(name: Name) -> Key {
        Key::Approval(name)
    }

    fn holds(key: &Key) -> bool {
        matches!(key, Key::Approval(_))
    }

    fn ends_evaluations(&self, _: &CachedObjects) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn on_deleted(context: &Context, gone: DeletedObject) {
        context.enqueue_approval(gone.name);
        // A run that waits for this Approval creates it again.
        if let Some(run) = gone.owner {
            context.enqueue_workflow(run);
        }
    }

    fn enqueue_related(context: &Context, meta: &ObjectMeta) {
        let name = name_of(meta);
        let owners = meta.owner_references.iter().flatten().filter(|owner| owner.kind == Workflow::KIND);
        for owner in owners {
            context.enqueue_workflow(name.beside(&owner.name));
        }
        context.enqueue_approval(name);
    }
}

/// The most events that are applied at once, so that other kinds do not wait for long.
const AT_ONCE: usize = 64;

/// Applies an event and further events that have arrived. Returns whether one of the events completed a list.
pub(crate) fn apply_all<K: Watched>(
    context: &Context,
    store: &Store<K>,
    first: WatchEvent<K>,
    more: &mut mpsc::Receiver<WatchEvent<K>>,
) -> bool {
    let mut complete = apply(context, store, first);
    for _ in 1..AT_ONCE {
        let Ok(event) = more.try_recv() else { break };
        complete |= apply(context, store, event);
    }
    complete
}

/// Applies an event. Returns whether it completed a list.
fn apply<K: Watched>(context: &Context, store: &Store<K>, event: WatchEvent<K>) -> bool {
    match event {
        WatchEvent::Listing => {
            store.begin_list();
            context.objects.unreadable.begin_list(K::holds);
        }
        WatchEvent::Listed(object) => {
            let name = Name::of(&*object);
            // A finished object without a TTL needs no reconcile.
            let idle = object.is_finished() && object.delete_at().is_none();
            mark_readable::<K>(context, object.meta());
            let ends_evaluations = object.ends_evaluations(&context.objects);
            if let Some(notices) = context.notices() {
                object.queue_derived(&notices);
            }
            let is_news = store.list(*object);
            if is_news && ends_evaluations {
                context.evaluations.withdrawals.wake(&name.namespace);
            }
            if is_news && !idle {
                context.queue.trigger(K::key(name));
            }
        }
        WatchEvent::ListDone(version) => {
            for gone in store.finish_list(&version) {
                context.evaluations.withdrawals.wake(&gone.name.namespace);
                K::on_deleted(context, gone);
            }
            context.objects.unreadable.finish_list(K::holds);
            return true;
        }
        WatchEvent::Applied(object) => {
            let name = Name::of(&*object);
            let version = object.meta().resource_version.clone().unwrap_or_default();
            let ends_evaluations = object.ends_evaluations(&context.objects);
            mark_readable::<K>(context, object.meta());
            if store.apply(*object) {
                if ends_evaluations {
                    context.evaluations.withdrawals.wake(&name.namespace);
                }
                // The answer to a write of this process may have been lost, and its notices with it.
                if let Some(notices) = context.notices()
                    && let Found::Here(object) = store.find(&name)
                {
                    object.queue_derived(&notices);
                }
                context.queue.trigger_for_version(K::key(name), version);
            }
        }
        WatchEvent::Deleted(meta) => apply_deletion(context, store, &meta),
        WatchEvent::Unreadable { meta, why, listed } => {
            let name = name_of(&meta);
            if listed {
                store.list_unreadable(name);
            } else {
                store.mark_stale(&name);
            }
            mark_unreadable::<K>(context, &meta, &why);
        }
        WatchEvent::Broken { why, unknown_kind: true } => {
            tracing::info!(kind = K::KIND, "waiting until the API server knows the kind: {why}");
        }
        WatchEvent::Broken { why, .. } => tracing::warn!(kind = K::KIND, "the watch broke and is opened again: {why}"),
    }
    false
}

/// Records an object that cannot be decoded, enqueues the related objects, and reports the object the first time.
fn mark_unreadable<K: Watched>(context: &Context, meta: &ObjectMeta, why: &str) {
    let (name, why) = (name_of(meta), text::display(why, 300));
    context.metrics.count_unreadable(K::KIND);
    let is_news = context.objects.unreadable.insert(K::key(name.clone()), &why);
    K::enqueue_related(context, meta);
    if !is_news {
        tracing::debug!(kind = K::KIND, %name, "still cannot be read: {why}");
        return;
    }
    tracing::error!(kind = K::KIND, %name, "cannot be read, so nothing is done for it: {why}");
    // An Event needs a namespace.
    if meta.namespace.is_some() {
        let note = format!(
            "this version of the operator cannot read it, so nothing is done for it: {why}; update the operator, or correct or delete the object"
        );
        let version = meta.resource_version.as_deref().unwrap_or_default();
        context.say(K::about(meta), EventReason::Unreadable, &note, version);
    }
}

/// Removes an object from the unreadable objects, and enqueues the related objects if it was among them.
fn mark_readable<K: Watched>(context: &Context, meta: &ObjectMeta) {
    if context.objects.unreadable.remove(&K::key(name_of(meta))) {
        tracing::info!(kind = K::KIND, name = %name_of(meta), "can be read again");
        K::enqueue_related(context, meta);
    }
}

/// Removes a deleted object from the store, wakes the evaluations of its namespace, and enqueues what depends on it.
fn apply_deletion<K: Watched>(context: &Context, store: &Store<K>, meta: &ObjectMeta) {
    context.objects.unreadable.remove(&K::key(name_of(meta)));
    if let Some(gone) = store.remove(name_of(meta), meta.uid.as_deref().unwrap_or_default()) {
        context.evaluations.withdrawals.wake(&gone.name.namespace);
        K::on_deleted(context, gone);
    }
}
