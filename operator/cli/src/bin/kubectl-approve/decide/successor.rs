//! The Approval that replaces a superseded one, found in the cluster.

use signoff_api::Approval;
use signoff_review::{seen::still_open, successor::last};

use crate::cluster::client::Session;

/// Returns the name of the open Approval of the same gate and run. `None` also if Approvals cannot be listed.
pub async fn find_successor(session: &Session, approval: &Approval) -> Option<String> {
    let (found, _) = session.list(false, &still_open()).await.ok()?;
    last(approval, found.iter().map(|seen| &seen.approval))?.metadata.name.clone()
}
