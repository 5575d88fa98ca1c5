//! `doctor`: whether the rules that vouch for decisions are in force, and who could impersonate the operator, for
//! anybody who may read the rules.
//!
//! It must not mend anything.

use signoff_admission::policies::Identity;
use signoff_admission::{READER_ROLE, inspect_as, installed_for, serves_mutating_policies};

use crate::{args::Doctor, client::Session, error::Failure, impersonators};

/// The result of the check.
pub struct Found {
    /// For people.
    pub page: String,
    /// Whether all rules are in force.
    pub healthy: bool,
}

/// Reads the rules and compares them with those of this plugin's version.
///
/// # Errors
/// As every request.
pub async fn doctor(session: &Session, options: &Doctor) -> Result<Found, Failure> {
    let client = session.raw();
    let explain = |error| match session.explain(error) {
        Failure::Refused(why) => {
            Failure::Refused(format!("{why}; the ClusterRole {READER_ROLE} lets you read the rules"))
        }
        other => other,
    };
    let mutating = serves_mutating_policies(client).await.map_err(explain)?;
    let installed = installed_for(client).await.map_err(explain)?.unwrap_or_default();
    let operator = Identity::new(
        options.operator_namespace.as_deref().unwrap_or(&installed.namespace),
        options.operator_service_account.as_deref().unwrap_or(&installed.service_account),
    );
    let found = inspect_as(client, operator.clone(), mutating).await.map_err(explain)?;
    let version = env!("CARGO_PKG_VERSION");
    let impersonators = impersonators::paragraph(client, &operator).await;
    let page = format!("Compared with the rules of kubectl-approve {version}.\n{}\n{impersonators}", found.report());
    Ok(Found { page, healthy: found.problems().is_empty() })
}
