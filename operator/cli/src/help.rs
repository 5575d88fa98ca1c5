//! The help of a program with its subcommands in groups *(pure)*.

use clap::Command;

/// A title, and the subcommands below it in their order.
pub type Group = (&'static str, &'static [&'static str]);

/// Returns the command line with a help that lists the subcommands only in groups.
#[must_use]
pub fn group_subcommands(command: Command, groups: &[Group], usage: &'static str) -> Command {
    let header = *command.get_styles().get_header();
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
        format!("  {name:<12}{}\n", about.unwrap_or_default())
    };
    let group = |(title, names): &Group| {
        format!("{header}{title}:{header:#}\n{}\n", names.iter().map(line).collect::<String>())
    };
    let groups: String = groups.iter().map(group).collect();
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}");
    command.help_template(template).override_usage(usage).mut_subcommands(|subcommand| subcommand.hide(true))
}
