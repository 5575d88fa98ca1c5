//! The commands of the tutorial, typed in one shell by an administrator on a node of its own. An error of the page
//! fails here.

use std::fs;
use std::path::Path;

use signoff_tests::control_plane::program;
use signoff_tests::image::{OPERATOR_IMAGE, operator_image};
use signoff_tests::page::{self, Block, Command};

use crate::harness::own;

const PAGE: &str = include_str!("../../docs/tutorial.md");
/// The line that the shell prints after each command, before its exit code.
const ENDED: &str = "-- the command ended with ";

/// Returns a script that types each command in one shell and prints its exit code.
fn script(commands: &[(bool, Command<'_>)]) -> String {
    let typed = commands.iter().map(|(_, command)| format!("{}echo \"\n{ENDED}$?\"\n", command.script));
    std::iter::once("exec 2>&1\n".to_owned()).chain(typed).collect()
}

#[tokio::test]
async fn every_command_of_the_tutorial_has_the_shown_output() {
    let node = own().await;
    let operator = program("signoff-controller", "signoff-operator").unwrap();
    let page = program("signoff-web", "signoff-web").unwrap();
    let image = move || operator_image(&operator, &page).unwrap().layout(OPERATOR_IMAGE).unwrap();
    let layout = tokio::task::spawn_blocking(image);
    node.take_in(&layout.await.unwrap()).await.unwrap();

    let blocks = page::blocks(PAGE);
    let folder = tempfile::tempdir().unwrap();
    for block in &blocks {
        if let Some(file) = block.word("file") {
            fs::write(folder.path().join(file), block.text()).unwrap();
        }
    }
    let is_typed = |block: &&Block<'_>| ["console", "sh"].contains(&block.language);
    let of = |block: &Block<'static>| {
        let is_refused = block.word("refused").is_some();
        block.commands().into_iter().map(move |command| (is_refused, command)).collect::<Vec<_>>()
    };
    let commands: Vec<(bool, Command<'_>)> = blocks.iter().filter(is_typed).flat_map(of).collect();
    assert!(commands.len() > 50, "{} commands: where are they?", commands.len());

    // The shell's own copy: the page changes the namespace of its context.
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(node.cluster().kubeconfig(), &kubeconfig).unwrap();
    let clients = node.cluster().clients();
    let plugin = program("signoff-cli", "kubectl-approve").unwrap();
    let script = format!("cd '{}'\n{}", folder.path().display(), script(&commands));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let shell = node
        .cluster()
        .run(Path::new("bash"), ["-c", &script])
        .kubeconfig(&kubeconfig)
        .env("REPOSITORY", repository)
        .env("SIGNOFF_DEFAULT_WAIT", "1m");
    let helm = ["CACHE", "CONFIG", "DATA"];
    let shell = helm.iter().fold(shell, |shell, what| shell.env(format!("HELM_{what}_HOME"), folder.path().join(what)));
    let folders = [clients.kubectl.parent(), clients.helm.parent(), plugin.parent()];
    let shell = folders.into_iter().flatten().fold(shell, |shell, folder| shell.search(folder));
    let written = shell.run().await.unwrap().stdout;

    let (mut rest, mut failures) = (written.as_str(), Vec::new());
    for (is_refused, command) in &commands {
        let (output, after) = rest.split_once(ENDED).unwrap_or((rest, ""));
        let (code, after) = after.split_once('\n').unwrap_or((after, ""));
        rest = after;
        let missing = page::missing(&command.printed, output);
        if (code != "0") != *is_refused || missing.is_some() {
            failures.push(format!("$ {}{output}ended with {code:?}; not printed: {missing:?}", command.script));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
