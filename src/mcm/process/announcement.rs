//! The first line of the log.

use super::built_in::drivers_of_build;

/// Logs the version, the drivers of this build, and the arguments.
pub(super) fn announce() {
    let version = match option_env!("MCM_COMMIT") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    let drivers = drivers_of_build().0.join(",");
    let arguments = std::env::args().skip(1).map(without_user).collect::<Vec<_>>().join(" ");
    tracing::info!(version, drivers, arguments, "starting mcm");
}

/// An argument; if it is a URL, without its user and password.
fn without_user(argument: String) -> String {
    match argument.split_once("://") {
        Some((scheme, rest)) if rest.contains('@') => {
            format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
        }
        _ => argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_url_is_not_logged() {
        for (argument, expected) in [
            ("--simulated-cloud=http://user:pass@cloud:80/p", "--simulated-cloud=http://cloud:80/p"),
            ("--simulated-cloud=http://cloud:80", "--simulated-cloud=http://cloud:80"),
            ("--namespace=n", "--namespace=n"),
        ] {
            assert_eq!(without_user(argument.to_owned()), expected);
        }
    }
}
