//! The mails of the demo of the inbox: a mail server on loopback, and the administrator's file that names it.
//!
//! **Invariant:** no mail leaves the machine. All mails stay in a folder.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signoff_tests::cargo::metadata;
use signoff_tests::control_plane::{Cluster, named};
use signoff_tests::mail_server::{MailServer, PASSWORD, USER};
use signoff_tests::say;

use super::super::show;
use super::stage::Stage;

/// The names of the people with a mailbox.
const PEOPLE: [&str; 4] = ["alice", "bob", "carol", "dana"];
/// The groups that approve the runs, each with its members in [`PEOPLE`].
const GROUPS: [(&str, &[&str]); 2] = [("finance", &["alice", "bob", "carol"]), ("finance-leads", &["alice"])];
/// The time within which the first mail must arrive.
const FIRST_MAIL_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the folder for mails again, without the mails of earlier runs, and returns its path.
pub(super) fn create_folder() -> Result<PathBuf> {
    let folder = metadata()?.target_directory.join("inbox-mails");
    if folder.is_dir() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Starts the mail server, and gives the operator the rights for notices. Returns `None` without Python.
pub(super) async fn start_server(cluster: &Cluster, folder: &Path) -> Result<Option<MailServer>> {
    match MailServer::start_in(folder).await {
        Ok(server) => {
            // This value adds the rights. The operator runs outside the cluster and reads another file of notices.
            cluster.install(&[("notifications.inbox", "https://signoff.example.com")]).await?;
            Ok(Some(server))
        }
        Err(error) => {
            say::step(&format!("no mails: {error:#}"));
            Ok(None)
        }
    }
}

/// Writes the administrator's file of notices and the files that it names. Returns its path.
pub(super) fn configure(cluster: &Cluster, server: &MailServer, inbox: &str) -> Result<String> {
    let folder = cluster.folder().join("notices");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let write = |name: &str, text: &str| -> Result<String> {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(file.display().to_string())
    };
    let user_of = |name: &&str| named(name).map(|person| person.user);
    let users = PEOPLE.iter().map(user_of).collect::<Result<Vec<_>>>()?;
    let users: String = users.iter().map(|user| format!("  {user}: {{mail: {user}}}\n")).collect();
    let mut groups = String::new();
    for (group, members) in GROUPS {
        let members = members.iter().map(user_of).collect::<Result<Vec<_>>>()?;
        groups.push_str(&format!("  {group}: {{members: [{}]}}\n", members.join(", ")));
    }
    let people = write("people.yaml", &format!("users:\n{users}groups:\n{groups}"))?;
    let (user, password) = (write("user", USER)?, write("password", PASSWORD)?);
    let (url, address) = (server.url(), server.address());
    let smtp = format!("{{url: \"{url}\", userFile: {user}, passwordFile: {password}, from: signoff@example.com}}");
    let text = format!(
        "inbox: {inbox}\nallowedAddresses: [\"{address}\"]\nchannels: [{{name: mail, smtp: {smtp}}}]\n\
         people: {{file: {people}}}\nroutes: [{{to: [mail]}}]\n"
    );
    write("notifications.yaml", &text)
}

/// Waits for the first mail, and shows it.
pub(super) async fn show_first(stage: &Stage) -> Result<()> {
    let Some(server) = &stage.mail else { return Ok(()) };
    show::act("Everybody is told", "Who may decide has a mail for each request, with a link to its page.");
    let begin = Instant::now();
    let first = loop {
        if let Some(first) = server.mails()?.into_iter().next() {
            break first;
        }
        if begin.elapsed() > FIRST_MAIL_TIMEOUT {
            let log = server.log_tail();
            bail!("no mail has arrived after {FIRST_MAIL_TIMEOUT:?}; the mail server's log ends:\n{log}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    show::output(&first.text);
    show::words(&format!("This is the first one. All mails are in {}\n", server.folder().display()));
    Ok(())
}
