//! `signoff tools`: lists the tools of MCP servers and the gates that would ask about them, and pins their definitions.
//!
//! target -> list each server *(I/O)* -> compare with the Workflow *(pure)* -> print -> save catalogues and pins.
//!
//! **Invariant:** no tool is called, and no command is started. Text of a server is shown escaped and cut.

mod list;
mod output;
mod save;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use signoff_api::{Workflow, glob::is_like, server::Server, workflow::SecretEntry};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_engine::Settings;
use signoff_manifest::{report, server_tools::Catalogues};
use signoff_strands::read_any;

use crate::{
    exit::Exit,
    models::{parse_secret_entry, parse_timeout},
    run::Format,
    texts::{self, Text},
};

/// The name under which the server of a URL is listed.
const NAME: &str = "server";

/// List the tools of MCP servers and what would be asked about them, and pin their definitions
#[derive(Args, Debug)]
pub struct Tools {
    /// The URL of a server, the file of a Workflow, or - for standard input
    #[arg(value_name = "URL|FILE")]
    target: String,
    /// List this server of the file only; with a URL, the name under which it is listed
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// List these tools only, by the server's own name or glob; can be given more than once
    #[arg(long = "tool", value_name = "GLOB")]
    tools: Vec<String>,
    /// The key for a URL: a Secret and a key of it, as in crm/token. It is read as `signoff run` reads it
    #[arg(long, value_name = "SECRET/KEY")]
    key: Option<String>,
    /// The header that is the key, alone, instead of Authorization
    #[arg(long, value_name = "NAME", requires = "key")]
    header: Option<String>,
    /// The folder of Secrets. Without it, each key is the environment variable SIGNOFF_SECRET_<NAME>_<KEY>
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// Write the listed definitions into `pins` of the file. A pinned tool needs no approval if no gate asks
    #[arg(long)]
    pin: bool,
    /// Save the catalogues in this file, for `signoff plan --catalogue`
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// Replace an existing file of --catalogue
    #[arg(long, requires = "catalogue")]
    force: bool,
    /// The output format
    #[arg(long, short = 'o', value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The longest time for the list of one server, such as 30s or 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
}

/// The servers whose tools are listed, and the file with the servers.
struct ToolTarget {
    servers: Vec<Server>,
    secrets: Vec<SecretEntry>,
    /// The text and its Workflow; `None` for a URL.
    file: Option<(Text, Box<Workflow>)>,
}

/// Prints the tools of each server, then saves catalogues and pins, if the options ask for them.
pub async fn tools(options: Tools) -> anyhow::Result<Exit> {
    let target = read_target(&options)?;
    let listed = list::list_servers(&options, &target).await?;
    let is_selected = |tool: &str| options.tools.is_empty() || options.tools.iter().any(|glob| is_like(glob, tool));
    let workflow = target.file.as_ref().map(|(_, workflow)| &**workflow);
    output::print(options.format, &listed, workflow, is_selected)?;
    if let Some(file) = &options.catalogue {
        let catalogues: Catalogues =
            listed.iter().map(|listed| (listed.server.name.clone(), listed.catalogue.clone())).collect();
        save::save_catalogues(file, options.force, &catalogues)?;
    }
    if options.pin
        && let Some((text, _)) = &target.file
    {
        save::save_pins(Path::new(&options.target), &text.text, &listed, is_selected)?;
    }
    Ok(if listed.len() == target.servers.len() { Exit::Ok } else { Exit::Failed })
}

/// Returns the servers that the command line names. Prints the problems of an invalid file. Leaves out servers that are
/// commands, with a note.
fn read_target(options: &Tools) -> anyhow::Result<ToolTarget> {
    if ["http://", "https://"].iter().any(|scheme| options.target.starts_with(scheme)) {
        return target_of_url(options);
    }
    if options.key.is_some() {
        return Err(Exit::Usage.because("--key is for a URL: a file names the keys of its servers"));
    }
    if options.pin && options.target == "-" {
        return Err(Exit::Usage.because("--pin writes into a file: name the file instead of standard input"));
    }
    let text = texts::read_one(Path::new(&options.target)).map_err(|why| Exit::Usage.because(why))?;
    // Servers that are commands are named without starting them.
    let settings = Settings { allow_commands: true, ..Settings::default() };
    let read = read_any(&text.text, "", &settings).map_err(|problems| {
        problems.iter().for_each(|problem| terminal::note(&report::shown(&text.name, &text.text, problem)));
        Exit::Invalid.because(format!("{}: {}", text.name, report::counted(&problems)))
    })?;
    let workflow = read.workflow;
    let names: Vec<_> = workflow.spec.servers.iter().map(|server| server.name.as_str()).collect();
    if names.is_empty() {
        return Err(Exit::Usage.because(format!("{} has no servers: add some in spec.servers", text.name)));
    }
    let is_selected = |server: &&Server| options.server.as_ref().is_none_or(|name| server.name == *name);
    let selected: Vec<Server> = workflow.spec.servers.iter().filter(is_selected).cloned().collect();
    if selected.is_empty() {
        let name = one_line(options.server.as_deref().unwrap_or_default(), 63);
        let message = format!("{} has no server {name}: it has {}", text.name, names.join(", "));
        return Err(Exit::Usage.because(message));
    }
    let (commands, servers): (Vec<_>, Vec<_>) = selected.into_iter().partition(|server| !server.command.is_empty());
    if !commands.is_empty() {
        let names: Vec<_> = commands.into_iter().map(|server| server.name).collect();
        let message = format!(
            "not asked: {}. Only `signoff run --allow-commands` starts servers that are commands",
            names.join(", ")
        );
        if servers.is_empty() {
            return Err(Exit::Unsupported.because(message));
        }
        terminal::note(&message);
    }
    let secrets = workflow.spec.secrets.clone();
    Ok(ToolTarget { servers, secrets, file: Some((text, workflow)) })
}

fn target_of_url(options: &Tools) -> anyhow::Result<ToolTarget> {
    if options.pin {
        return Err(Exit::Usage.because("--pin writes into the file of a Workflow: name that file instead of a URL"));
    }
    let entry = options.key.as_deref().map(parse_secret_entry).transpose()?;
    let server = Server {
        name: options.server.clone().unwrap_or_else(|| NAME.to_owned()),
        url: Some(options.target.clone()),
        key: entry.as_ref().map(|entry| entry.name.clone()),
        header: options.header.clone(),
        ..Server::default()
    };
    match server.url_error() {
        Some(why) => Err(Exit::Usage.because(format!("the URL: {why}"))),
        None => Ok(ToolTarget { servers: vec![server], secrets: entry.into_iter().collect(), file: None }),
    }
}
