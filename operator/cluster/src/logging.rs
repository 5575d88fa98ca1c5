//! The log of a program on standard error. `RUST_LOG` sets its levels.
//!
//! **Invariant:** writes nothing to standard output, which is for the program's own output.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Starts the log of this process. `is_json`: whether each line is a JSON object.
///
/// # Errors
/// The process has a log already.
pub fn start(is_json: bool) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = filter(&std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default());
    // Only a terminal shows colours; a file or a log collector would get escape sequences.
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    if is_json { builder.json().flatten_event(true).try_init() } else { builder.try_init() }
}

/// Returns the filter of the log. The client of the API server prints Rust structs of errors that the operator logs
/// itself in a sentence, so it logs only errors unless `RUST_LOG` names `kube`, and nothing if `RUST_LOG` is `off`.
fn filter(typed: &str) -> EnvFilter {
    let (usual, typed) = ("kube=error", typed.trim());
    let directives = if is_off(typed) { typed.to_owned() } else { format!("{usual},{typed}") };
    EnvFilter::try_new(directives)
        .ok()
        .filter(|_| !typed.is_empty())
        .unwrap_or_else(|| EnvFilter::new(format!("{usual},info")))
}

/// Whether the level of all targets that `RUST_LOG` does not name is `off`.
fn is_off(typed: &str) -> bool {
    let mut levels = typed.split(',').filter_map(|directive| directive.parse::<LevelFilter>().ok());
    levels.next_back() == Some(LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_logs_errors_only_unless_rust_log_names_it() {
        for (typed, directives) in [
            ("", ["kube=error", "info"]),
            ("kube=what", ["kube=error", "info"]),
            ("debug", ["kube=error", "debug"]),
            ("info,kube=debug", ["kube=debug", "info"]),
        ] {
            let filter = filter(typed).to_string();
            let found: Vec<_> = filter.split(',').collect();
            assert_eq!(found.len(), 2, "{filter}");
            assert!(directives.iter().all(|directive| found.contains(directive)), "{filter}");
        }
    }

    #[test]
    fn off_silences_the_client_too_unless_rust_log_names_it() {
        for (typed, directives) in [
            ("off", "off"),
            (" OFF ", "off"),
            ("off,kube=debug", "kube=debug,off"),
            ("off,signoff_controller=info", "signoff_controller=info,off"),
            ("signoff_controller=off", "kube=error,signoff_controller=off"),
        ] {
            let filter = filter(typed).to_string();
            let (mut found, mut expected): (Vec<_>, Vec<_>) =
                (filter.split(',').collect(), directives.split(',').collect());
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{typed}");
        }
        assert_eq!(filter("off").max_level_hint(), Some(LevelFilter::OFF));
    }
}
