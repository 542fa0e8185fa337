//! What each error of Redis means for us: `reference` table and code in one.

use tollgate_core::store::{ErrorClass, StoreError};

/// Prefixes as Redis and Valkey print them. Inside scripts the prefix stays, followed by the
/// script's name; what an ACL refuses inside a script comes as a plain `ERR`.
const PREFIXES: [(&str, ErrorClass); 23] = [
    ("NOSCRIPT", ErrorClass::NoScript),
    ("ERR Function not found", ErrorClass::NoScript),
    ("READONLY", ErrorClass::ReadOnly),
    ("LOADING", ErrorClass::Loading),
    ("MASTERDOWN", ErrorClass::MasterDown),
    ("NOREPLICAS", ErrorClass::NoReplicas),
    ("OOM", ErrorClass::OutOfMemory),
    ("MISCONF", ErrorClass::Misconfigured),
    ("BUSY", ErrorClass::Busy),
    ("MOVED", ErrorClass::Moved),
    ("ASK", ErrorClass::AskRedirect),
    ("TRYAGAIN", ErrorClass::TryAgain),
    ("CLUSTERDOWN", ErrorClass::ClusterDown),
    ("CROSSSLOT", ErrorClass::CrossSlot),
    ("NOPERM", ErrorClass::NoPermission),
    ("NOAUTH", ErrorClass::NoAuthentication),
    ("WRONGPASS", ErrorClass::NoAuthentication),
    ("ERR invalid password", ErrorClass::NoAuthentication),
    ("ERR max number of clients reached", ErrorClass::TooManyClients),
    ("ERR max number of clients + cluster connections reached", ErrorClass::TooManyClients),
    ("ERR The user executing the script", ErrorClass::NoPermission),
    ("ERR ACL failure in script", ErrorClass::NoPermission),
    ("ERR AUTH", ErrorClass::NoAuthentication),
];

/// The class of an error reply.
pub(super) fn class_of(message: &str) -> ErrorClass {
    PREFIXES
        .iter()
        .find(|(prefix, _)| {
            message
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || !rest.starts_with(char::is_alphanumeric))
        })
        .map_or(ErrorClass::Other, |(_, class)| *class)
}

/// The error a reply stands for.
pub(super) fn answered(message: &str) -> StoreError {
    // An error can quote a key; a log line must not be drowned or broken by it.
    let shown = message.chars().filter(|c| !c.is_control()).take(200).collect();
    StoreError::Answered { class: class_of(message), message: shown }
}

/// How a server says that it has no functions, or none such as ours.
const WITHOUT_FUNCTIONS: [&str; 5] = [
    "ERR unknown command",
    "ERR unknown subcommand",
    "ERR Engine ",
    "ERR Error compiling function",
    "ERR Error registering functions",
];

/// Whether an answer to a call of a function, or to loading its library, says that the user may not
/// or the server cannot. Either is said before anything runs: what an ACL or a missing command
/// refuses inside a function is said in other words.
pub(super) fn is_for_want_of_functions(message: &str) -> bool {
    let is_forbidden = message.starts_with("NOPERM")
        && ["'fcall'", "'function|load'"].iter().any(|command| message.contains(command));
    is_forbidden || WITHOUT_FUNCTIONS.iter().any(|text| message.starts_with(text))
}

/// Whether a connection that answered so is of no more use: the server behind it is not, or no
/// longer, the primary we want.
pub(super) fn is_fatal(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::ReadOnly
            | ErrorClass::Loading
            | ErrorClass::MasterDown
            | ErrorClass::NoAuthentication
            | ErrorClass::TooManyClients
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_what_redis_really_says() {
        for (message, class) in [
            ("NOSCRIPT No matching script. Please use EVAL.", ErrorClass::NoScript),
            ("ERR Function not found", ErrorClass::NoScript),
            (
                "READONLY You can't write against a read only replica. script: 1a2b, on @user_script:1.",
                ErrorClass::ReadOnly,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorClass::OutOfMemory),
            ("BUSY Redis is busy running a script.", ErrorClass::Busy),
            ("BUSYGROUP Consumer Group name already exists", ErrorClass::Other),
            ("BUSYKEY Target key name already exists.", ErrorClass::Other),
            ("NOAUTH Authentication required.", ErrorClass::NoAuthentication),
            ("WRONGPASS invalid username-password pair or user is disabled.", ErrorClass::NoAuthentication),
            ("NOPERM this user has no permissions to run the 'evalsha' command", ErrorClass::NoPermission),
            (
                "ERR The user executing the script can't run this command or subcommand script: x",
                ErrorClass::NoPermission,
            ),
            ("LOADING Redis is loading the dataset in memory", ErrorClass::Loading),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                ErrorClass::MasterDown,
            ),
            ("NOREPLICAS Not enough good replicas to write.", ErrorClass::NoReplicas),
            ("ERR max number of clients reached", ErrorClass::TooManyClients),
            ("ERR max number of clients + cluster connections reached", ErrorClass::TooManyClients),
            (
                "ERR AUTH <password> called without any password configured for the default user.",
                ErrorClass::NoAuthentication,
            ),
            ("ERR ACL failure in script: User tollgate has no permissions", ErrorClass::NoPermission),
            ("MOVED 3999 127.0.0.1:6381", ErrorClass::Moved),
            ("ASK 3999 127.0.0.1:6381", ErrorClass::AskRedirect),
            ("ASKING is no error of ours", ErrorClass::Other),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorClass::TryAgain),
            ("CLUSTERDOWN Hash slot not served", ErrorClass::ClusterDown),
            ("CLUSTERDOWN The cluster is down", ErrorClass::ClusterDown),
            ("CROSSSLOT Keys in request don't hash to the same slot", ErrorClass::CrossSlot),
            ("MISCONF Redis is configured to save RDB snapshots", ErrorClass::Misconfigured),
            ("ERR unknown command", ErrorClass::Other),
        ] {
            assert_eq!(class_of(message), class, "{message}");
        }
    }

    #[test]
    fn what_says_that_there_are_no_functions_says_that_none_has_run() {
        for message in [
            "NOPERM this user has no permissions to run the 'fcall' command",
            "NOPERM User ann has no permissions to run the 'function|load' command",
            "ERR unknown command 'FCALL', with args beginning with: 'tollgate_0_fast' '1' ",
            "ERR unknown subcommand 'LOAD'. Try FUNCTION HELP.",
            "ERR Engine 'lua' not found",
            "ERR Error compiling function: @user_function:3: '=' expected near 'function'",
            "ERR Error registering functions: @user_function: 1: Script attempted to access nonexistent global",
        ] {
            assert!(is_for_want_of_functions(message), "{message}");
        }
        for message in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand script: tollgate_0_fast",
            "ERR Unknown Redis command called from script script: tollgate_0_fast",
            "ERR Function not found",
            "ERR user_function:12: attempt to index a nil value script: tollgate_0_fast, on @user_function:12.",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert!(!is_for_want_of_functions(message), "{message}");
        }
    }
}
