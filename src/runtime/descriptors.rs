//! File descriptors. A process for many cells needs thousands of them, and the soft limit of many systems is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, as Go programs do. Returns the limit that counts; `None`
/// without a limit.
pub fn raise() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: before.maximum, maximum: before.maximum };
    let raised = setrlimit(Resource::Nofile, wanted);
    let now = getrlimit(Resource::Nofile).current;
    match raised {
        Ok(()) => tracing::info!(before = before.current, now, "limit of open files raised"),
        Err(error) => tracing::warn!(now, hard = before.maximum, %error, "limit of open files not raised"),
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        assert_eq!(raise(), getrlimit(Resource::Nofile).maximum);
    }
}
