//! The files that `signoff tools` writes: a file with catalogues, and the file of the Workflow with pins *(I/O)*.

use std::{fs, io::Write as _, path::Path};

use signoff_api::{catalogue::ServerTool, server::ToolPin};
use signoff_cli::{
    sanitize::{self, one_line},
    terminal,
};
use signoff_manifest::{pins::with_pins, server_tools::Catalogues};

use super::list::ListedServer;
use crate::{exit::Exit, import, texts};

/// Saves catalogues as `signoff plan --catalogue` reads them.
pub(super) fn save_catalogues(file: &Path, force: bool, all: &Catalogues) -> anyhow::Result<()> {
    import::write(file, force, &sanitize::json(all)?)?;
    terminal::note(&format!("the catalogues are saved in {}", texts::display_path(file)));
    Ok(())
}

/// Pins the definitions of the tools that the run has and that `is_selected` selects: writes the digests into the file
/// of the Workflow. Prints each definition that is newly pinned.
///
/// # Errors
/// The file is not UTF-8, was changed since it was read as `text`, or cannot be written.
pub(super) fn save_pins(
    file: &Path,
    text: &str,
    listed: &[ListedServer],
    is_selected: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    if listed.is_empty() {
        return Ok(());
    }
    let name = texts::display_path(file);
    let output_failure = |why: &str| Exit::Output.because(format!("{name}: {}", one_line(why, 1000)));
    let (mut edited, mut pinned) = (text.to_owned(), Vec::new());
    for ListedServer { server, catalogue, .. } in listed {
        let tools = catalogue.tools().iter().filter(|tool| server.has(tool.name()) && is_selected(tool.name()));
        let pins: Vec<_> =
            tools.map(|tool| ToolPin { tool: tool.name().to_owned(), definition: tool.digest().clone() }).collect();
        if pins.is_empty() {
            continue;
        }
        edited = with_pins(&edited, &server.name, &pins).map_err(|why| output_failure(&why))?;
        let is_new = |pin: &&ToolPin| server.pin(&pin.tool) != Some(&pin.definition);
        for pin in pins.iter().filter(is_new) {
            let (name, definition) =
                (server.tool_name(&pin.tool), catalogue.tool(&pin.tool).map(ServerTool::definition));
            terminal::note(&format!("{name}, in the words of its server:\n{}", sanitize::json(&definition)?));
            pinned.push(name);
        }
    }
    if edited == text {
        terminal::note(&format!("{name} has these pins already"));
        return Ok(());
    }
    // A file in another encoding would be written back in UTF-8.
    if fs::read(file).map_err(|why| output_failure(&why.to_string()))? != text.as_bytes() {
        let why = "it is not in UTF-8 without a byte order mark, or was changed meanwhile: nothing was written";
        return Err(output_failure(why));
    }
    replace(file, &edited).map_err(|why| output_failure(&format!("it cannot be written: {why}")))?;
    terminal::note(&format!(
        "{name}: pinned {}. A pinned tool runs unasked where no gate asks: review the definitions before you commit them",
        pinned.join(", ")
    ));
    Ok(())
}

/// Replaces the content of a file atomically. The file keeps its mode, and a link to it stays a link.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = fs::canonicalize(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let mut written = tempfile::NamedTempFile::new_in(folder)?;
    written.write_all(text.as_bytes())?;
    written.as_file().set_permissions(fs::metadata(&file)?.permissions())?;
    written.as_file().sync_all()?;
    written.persist(&file).map_err(|error| error.error)?;
    Ok(())
}
