//! Checks that an API server responds and serves our kinds.

use std::time::Duration;

use http::{Request, Uri};
use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use super::error::{API_VERSION, StartError, address, cause, credential_error};
use mcm_api::kinds::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES};

const KINDS: [&str; 4] = [MACHINES.plural, MACHINE_SETS.plural, MACHINE_DEPLOYMENTS.plural, MACHINE_CLASSES.plural];

/// Facts about an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its version, such as `v1.36.3`.
    pub git_version: String,
}

/// Timing of a check.
struct CheckTiming {
    /// Between two attempts.
    interval: Duration,
    /// Time limit of one attempt.
    attempt: Duration,
    /// Time limit in total.
    total: Duration,
}

const TIMEOUTS: CheckTiming =
    CheckTiming { interval: Duration::from_secs(1), attempt: Duration::from_secs(3), total: Duration::from_secs(10) };

/// An API server serves a kind a moment after its CRD was created.
const KINDS_PATIENCE: Duration = Duration::from_secs(5);

/// Waits up to 10 s until the control API server is healthy, and up to 5 s more until it serves all four kinds.
///
/// # Errors
/// It cannot be reached, rejects the credentials, cannot be trusted, or does not serve all kinds.
pub async fn check(client: &Client, server: &Uri) -> Result<ServerInfo, StartError> {
    let info = wait_until_ready(client, server).await?;
    let deadline = Instant::now() + KINDS_PATIENCE;
    let mut is_told = false;
    loop {
        let missing = missing_kinds(client, server).await?;
        if missing.is_empty() {
            return Ok(info);
        }
        if Instant::now() + TIMEOUTS.interval >= deadline {
            return Err(StartError::KindsMissing { server: address(server), missing });
        }
        if !std::mem::replace(&mut is_told, true) {
            let missing = missing.join(", ");
            tracing::info!(server = address(server), missing, "waiting for kinds to be served");
        }
        sleep(TIMEOUTS.interval).await;
    }
}

async fn missing_kinds(client: &Client, server: &Uri) -> Result<Vec<&'static str>, StartError> {
    let asked = timeout(KINDS_PATIENCE, client.list_api_group_resources(API_VERSION)).await;
    let served: Vec<String> = match asked {
        Ok(Ok(list)) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Vec::new(),
        Ok(Err(error)) => return Err(StartError::Refused { server: address(server), cause: cause(&error) }),
        Err(_) => {
            let seconds = KINDS_PATIENCE.as_secs();
            let cause = format!("no list of its kinds within {seconds} s");
            return Err(StartError::Unreachable { server: address(server), cause, seconds });
        }
    };
    Ok(KINDS.into_iter().filter(|kind| !served.iter().any(|name| name == kind)).collect())
}

/// Waits up to 10 s until an API server is healthy, and reads its version.
///
/// # Errors
/// It cannot be reached, rejects the credentials, or cannot be trusted.
pub async fn wait_until_ready(client: &Client, server: &Uri) -> Result<ServerInfo, StartError> {
    wait(client, server, &TIMEOUTS).await
}

async fn wait(client: &Client, server: &Uri, timeouts: &CheckTiming) -> Result<ServerInfo, StartError> {
    let deadline = Instant::now() + timeouts.total;
    loop {
        let cause = match timeout(timeouts.attempt, ask(client, server)).await {
            Ok(Ok(info)) => return Ok(info),
            Ok(Err(CheckFailure::Final(error))) => return Err(error),
            Ok(Err(CheckFailure::Passing(cause))) => cause,
            Err(_) => format!("no response within {} s", timeouts.attempt.as_secs()),
        };
        tracing::debug!(server = address(server), cause, "API server not ready");
        if Instant::now() + timeouts.interval >= deadline {
            return Err(StartError::Unreachable { server: address(server), cause, seconds: timeouts.total.as_secs() });
        }
        sleep(timeouts.interval).await;
    }
}

enum CheckFailure {
    /// A retry may help.
    Passing(String),
    /// A retry does not help.
    Final(StartError),
}

async fn ask(client: &Client, server: &Uri) -> Result<ServerInfo, CheckFailure> {
    healthz(client).await.map_err(|error| failure(server, &error))?;
    let version = client.apiserver_version().await.map_err(|error| failure(server, &error))?;
    Ok(ServerInfo { git_version: version.git_version })
}

/// Succeeds if a response proves that a server was reached, even if the user may not read its health or a proxy hides it.
async fn healthz(client: &Client) -> Result<(), kube::Error> {
    let request = Request::get("/healthz").body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request_text(request).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(()),
        answer => answer.map(drop),
    }
}

fn failure(server: &Uri, error: &kube::Error) -> CheckFailure {
    if let Some(error) = StartError::from_certificate(server, error) {
        return CheckFailure::Final(error);
    }
    let is_refused = matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
    if is_refused || credential_error(error).is_some() {
        return CheckFailure::Final(StartError::Refused { server: address(server), cause: cause(error) });
    }
    CheckFailure::Passing(cause(error))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::Response;
    use kube::client::Body;
    use rstest::rstest;

    use super::*;

    const HURRIED: CheckTiming = CheckTiming {
        interval: Duration::from_millis(1),
        attempt: Duration::from_millis(500),
        total: Duration::from_millis(50),
    };

    fn server(answer: impl Fn(&str) -> (u16, String) + Clone + Send + 'static) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = answer(request.uri().path());
            async move { Response::builder().status(code).body(Body::from(body.into_bytes())).map_err(|_| unreachable()) }
        });
        Client::new(service, "default")
    }

    fn unreachable() -> Infallible {
        panic!("a fixed response is well formed")
    }

    fn url() -> Uri {
        Uri::from_static("https://user:pass@api.example:6443/path")
    }

    fn healthy(path: &str) -> (u16, String) {
        match path {
            "/healthz" => (200, "ok".into()),
            "/version" => (200, version()),
            _ => (404, refusal(404, "NotFound")),
        }
    }

    fn version() -> String {
        r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#.into()
    }

    fn refusal(code: u16, reason: &str) -> String {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"{reason}","code":{code}}}"#
        )
    }

    fn kinds(names: &[&str]) -> String {
        let resources: Vec<_> = names
            .iter()
            .map(|name| format!(r#"{{"name":"{name}","singularName":"","namespaced":true,"kind":"X","verbs":[]}}"#))
            .collect();
        format!(
            r#"{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{API_VERSION}","resources":[{}]}}"#,
            resources.join(",")
        )
    }

    #[tokio::test]
    async fn a_server_with_all_kinds_is_good() {
        let client = server(|path| match path {
            "/apis/machine.sapcloud.io/v1alpha1" => (200, kinds(&KINDS)),
            path => healthy(path),
        });
        assert_eq!(check(&client, &url()).await.unwrap(), ServerInfo { git_version: "v1.36.3".into() });
    }

    #[rstest]
    #[case(&[], "machines, machinesets, machinedeployments, machineclasses")]
    #[case(&["machines", "machines/status", "machinesets"], "machinedeployments, machineclasses")]
    #[tokio::test(start_paused = true)]
    async fn missing_kinds_are_named(#[case] served: &'static [&'static str], #[case] named: &str) {
        let client = server(move |path| match path {
            "/apis/machine.sapcloud.io/v1alpha1" if !served.is_empty() => (200, kinds(served)),
            path => healthy(path),
        });
        let error = check(&client, &url()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the API server https://api.example:6443 does not serve {named} of machine.sapcloud.io/v1alpha1")
        );
        assert_eq!(error.hint(), "install them with: mcm crd | kubectl apply --server-side --force-conflicts -f -");
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_may_be_served_a_moment_late() {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = server(move |path| match path {
            "/apis/machine.sapcloud.io/v1alpha1" => {
                (200, kinds(&KINDS[3 - asked.fetch_add(1, Ordering::Relaxed).min(3)..]))
            }
            path => healthy(path),
        });
        assert!(check(&client, &url()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_says_what_it_serves_does_not_hold_up_the_start() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let path = request.uri().path().to_owned();
            if path.starts_with("/apis") {
                std::future::pending::<()>().await;
            }
            let (code, body) = healthy(&path);
            Response::builder().status(code).body(Body::from(body.into_bytes())).map_err(|_| unreachable())
        });
        let error = check(&Client::new(service, "default"), &url()).await.unwrap_err();
        assert!(matches!(error, StartError::Unreachable { .. }), "{error}");
    }

    #[tokio::test]
    async fn refused_credentials_are_not_tried_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let client = server(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            (401, refusal(401, "Unauthorized"))
        });
        let error = wait(&client, &url(), &HURRIED).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "talk to the API server https://api.example:6443: it responded 401 Unauthorized: no"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_wakes_up_in_time_is_good() {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = server(move |path| match path {
            "/healthz" if asked.fetch_add(1, Ordering::Relaxed) < 3 => (500, refusal(500, "InternalError")),
            path => healthy(path),
        });
        assert!(wait(&client, &url(), &HURRIED).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stays_sick_is_reported_with_its_last_answer() {
        let client = server(|_| (500, refusal(500, "InternalError")));
        let error = wait(&client, &url(), &HURRIED).await.unwrap_err().to_string();
        assert!(error.starts_with("reach the API server https://api.example:6443: it responded 500 InternalError: no"));
        assert!(!error.contains("pass"), "the user part of the address is not shown");
    }

    #[tokio::test]
    async fn hidden_health_is_no_reason_to_stay_away() {
        let client = server(|path| match path {
            "/healthz" => (403, refusal(403, "Forbidden")),
            path => healthy(path),
        });
        assert!(wait(&client, &url(), &HURRIED).await.is_ok());
    }
}
