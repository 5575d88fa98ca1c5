//! The arguments of `signoff-operator`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use signoff_api::Span;
use signoff_controller::{CallLimits, EvaluatorSettings, MemoryLimits, PodSettings, ValueSettings};
use signoff_engine::Settings;
use signoff_executor::Allowed;

/// Run Workflows and record the decisions of people.
#[derive(Debug, Parser)]
#[command(name = "signoff-operator", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The kubeconfig file. Without it, the operator must run in a Pod of the cluster.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig file. Default: the current context.
    #[arg(long, global = true, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// The operator's own namespace, which contains its Lease. Default: the namespace of its Pod or context.
    #[arg(long, global = true, env = "POD_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,
    /// The address for /metrics, /healthz and /readyz.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The name of this operator; its start time is always appended.
    #[arg(long, env = "POD_UID", default_value = "signoff-operator", value_name = "TEXT")]
    pub identity: String,
    /// The timeout of a gate that sets none.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    pub default_gate_timeout: Span,
    /// The longest timeout that a gate can set.
    #[arg(long, default_value = "168h", value_name = "DURATION")]
    pub max_gate_timeout: Span,
    /// An address that calls can reach although it is refused by default, such as 127.0.0.1:8080 or 100.64.0.0/10; can
    /// be given more than once.
    #[arg(long, value_name = "ADDRESS")]
    pub allow_address: Vec<Allowed>,
    /// The longest `timeout` that an http step or an agent step can set.
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub max_call_timeout: Span,
    /// The maximum number of calls to models and addresses in flight.
    #[arg(long, default_value_t = 64, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_calls: u16,
    /// The maximum number of calls in flight of one namespace. Default: half of --max-calls.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_calls_per_namespace: Option<u16>,
    /// The maximum number of calls in flight of one Workflow. Default: a quarter of --max-calls.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_calls_per_workflow: Option<u16>,
    /// The maximum number of calls in flight to one host, that is, the host of a provider's baseURL or of an http step.
    /// Default: three quarters of --max-calls.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_calls_per_provider: Option<u16>,
    /// The memory that the operator can use, in bytes. Long requests and answers of calls, long values and caches take
    /// their parts of it, and namespaces share each part. The chart gives the limit of the container.
    #[arg(long, env = "MEMORY_LIMIT", default_value_t = 536_870_912, value_name = "BYTES")]
    pub memory_limit: usize,
    /// The maximum size of the spec of a Workflow, including inputs, in bytes of JSON.
    #[arg(long, default_value_t = 524_288, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..))]
    pub max_workflow_bytes: u32,
    /// The maximum size of all long values of a Workflow together, in bytes.
    #[arg(long, default_value_t = 67_108_864, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1_048_576..))]
    pub max_value_bytes_per_workflow: u64,
    /// The maximum size of all long values of a namespace together, in bytes.
    #[arg(long, default_value_t = 536_870_912, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1_048_576..))]
    pub max_value_bytes_per_namespace: u64,
    /// Refuse pod steps. The operator then needs no rights on Pods.
    #[arg(long, conflicts_with = "pod_namespace")]
    pub no_pods: bool,
    /// A namespace that can have pod steps; can be given more than once. Default: every namespace.
    #[arg(long, value_name = "NAME")]
    pub pod_namespace: Vec<String>,
    /// The maximum number of Pods of steps that run at once in a namespace.
    #[arg(long, default_value_t = 50, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_pods_per_namespace: u16,
    /// The maximum number of Pods of steps that run at once for one Workflow.
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_pods_per_workflow: u16,
    /// The maximum CPU time of one evaluation of users' text, such as templates and conditions.
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    pub evaluation_limit: Span,
    /// The folder in which the operator notes which objects it evaluates. It must survive a restart of the process.
    /// Without it, the operator cannot find an object whose evaluation ended the process.
    #[arg(long, global = true, env = "STATE_DIR", value_name = "FOLDER")]
    pub state_dir: Option<PathBuf>,
    /// The file with the channels, people and routes of notices. Without it, no notices are sent. By the environment
    /// variable, `notify test` in the container finds it too.
    #[arg(long, global = true, env = "NOTIFICATIONS_FILE", value_name = "FILE")]
    pub notifications: Option<PathBuf>,
    /// The format of the log on standard error.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Honour no decision while a foreign webhook or mutating policy matches signoff.dev.
    #[arg(long)]
    pub strict_guard: bool,
    /// Test the admission policies on one API server only, not on each server of the Endpoints default/kubernetes.
    /// Always on with --kubeconfig.
    #[arg(long)]
    pub one_server: bool,
    /// Run without a Lease. Use this only if no other operator runs.
    #[arg(long)]
    pub no_lease: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Commands about the admission policies that verify decisions.
    #[command(subcommand)]
    Guard(GuardCommand),
    /// Commands about notices.
    #[command(subcommand)]
    Notify(NotifyCommand),
}

/// The commands about notices.
#[derive(Debug, Subcommand)]
pub enum NotifyCommand {
    /// Send one test notice through a channel, and print a report. At most one a minute. The exit code is 0 if it is
    /// delivered, otherwise 1.
    Test {
        /// The name of the channel in the file of notices.
        #[arg(value_name = "CHANNEL")]
        channel: String,
        /// The user who gets it, by the addresses of the file. Default: the channel itself.
        #[arg(long, value_name = "USER")]
        to: Option<String>,
    },
}

/// The commands about the admission policies.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// Print what is in force, what differs and the remedy. The exit code is 0 if everything is in force, otherwise 1.
    Check {
        /// The operator's service account.
        #[arg(long, default_value = "signoff-operator", value_name = "NAME")]
        service_account: String,
    },
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Arguments {
    /// Returns a name that no other process has, not even an earlier one with the same identity.
    pub fn incarnation(&self, started: jiff::Timestamp) -> String {
        let identity: String = self.identity.chars().take(64).collect();
        format!("{identity}_{}", started.as_microsecond())
    }

    /// Returns the limits of calls in flight.
    pub fn call_limits(&self) -> CallLimits {
        let usual = CallLimits::of_total(self.max_calls.into());
        let limit = |argument: Option<u16>, usual: usize| argument.map_or(usual, usize::from);
        CallLimits {
            total: usual.total,
            per_namespace: limit(self.max_calls_per_namespace, usual.per_namespace),
            per_workflow: limit(self.max_calls_per_workflow, usual.per_workflow),
            per_host: limit(self.max_calls_per_provider, usual.per_host),
        }
    }

    /// Returns the parts of the memory.
    pub fn memory(&self) -> MemoryLimits {
        MemoryLimits::of(self.memory_limit, self.max_calls.into())
    }

    /// Returns the limits of long values.
    pub fn values(&self) -> ValueSettings {
        ValueSettings {
            per_workflow: self.max_value_bytes_per_workflow,
            per_namespace: self.max_value_bytes_per_namespace,
        }
    }

    /// Returns the settings for Pods of steps.
    pub fn pods(&self) -> PodSettings {
        PodSettings {
            enabled: !self.no_pods,
            namespaces: self.pod_namespace.clone(),
            most_in_namespace: self.max_pods_per_namespace.into(),
            most_of_workflow: self.max_pods_per_workflow.into(),
        }
    }

    /// Returns the settings for evaluations.
    pub fn evaluations(&self) -> EvaluatorSettings {
        EvaluatorSettings {
            // Without any time, no run could continue.
            limit: self.evaluation_limit.duration().max(Duration::from_millis(100)),
            marks: self.state_dir.clone(),
            ..EvaluatorSettings::default()
        }
    }

    /// Returns the administrator's settings for all runs.
    pub fn settings(&self) -> Settings {
        Settings {
            default_gate_timeout: self.default_gate_timeout.duration(),
            default_call_gate_timeout: self.default_gate_timeout.duration(),
            max_gate_timeout: self.max_gate_timeout.duration(),
            max_call_timeout: self.max_call_timeout.duration(),
            max_spec_bytes: usize::try_from(self.max_workflow_bytes).unwrap_or(usize::MAX),
            allow_commands: false,
        }
    }
}

#[cfg(test)]
#[path = "../../../../../tests/command_reference.rs"]
mod command_reference;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_reference_of_the_command_line_is_that_of_the_program() {
        let head = "`signoff-operator`\n\nThe operator. The chart sets these options from its values.";
        command_reference::matches_page("signoff-operator.md", head, Arguments::command());
    }

    #[test]
    fn the_default_limits_of_long_values_equal_the_controllers() {
        assert_eq!(Arguments::parse_from(["signoff-operator"]).values(), ValueSettings::default());
    }

    #[test]
    fn the_default_parts_of_memory_equal_the_controllers() {
        assert_eq!(Arguments::parse_from(["signoff-operator"]).memory(), MemoryLimits::default());
    }

    #[test]
    fn two_processes_with_one_identity_are_two_incarnations() {
        let arguments = Arguments::parse_from(["signoff-operator", "--identity", "pod-1"]);
        let start = jiff::Timestamp::UNIX_EPOCH;
        let later = start + jiff::SignedDuration::from_millis(1);
        assert_ne!(arguments.incarnation(start), arguments.incarnation(later));
        assert!(arguments.incarnation(start).starts_with("pod-1_"));
    }
}
