//! Finds the owner of the VMs of a namespace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::Namespace};
use kube::{Api, Client};
use tokio::{sync::Mutex, time::Instant};

use super::{access, cell::CellBuilder, objects::chain};
use mcm_api::vm_owner::Owner;

/// A Namespace is read again after this time: permissions change, and another one may get its name.
const KEPT: Duration = Duration::from_mins(10);
/// The same of one that the process may not read: few requests are refused.
const KEPT_UNREAD: Duration = Duration::from_hours(1);
/// After a failure the next read waits so long, so that calls that wait for it fail together.
const PAUSE: Duration = Duration::from_secs(1);

/// The Namespace cannot be read, so the owner of its VMs is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("get Namespace {namespace}: {problem}; it is retried")]
pub struct UnknownOwner {
    namespace: String,
    problem: String,
}

/// The owners of the VMs of a control cluster.
pub struct VmOwners {
    client: Client,
    known: Mutex<HashMap<String, KnownOwner>>,
}

struct KnownOwner {
    owner: Result<Owner, UnknownOwner>,
    until: Instant,
}

impl VmOwners {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), known: Mutex::default() }
    }

    /// Registers the look-up in a cell.
    pub fn of_cell(builder: &mut CellBuilder<'_>) -> Arc<Self> {
        builder.shared_with(|builder| Self::new(&builder.config().control))
    }

    /// The owner of the VMs of a namespace.
    ///
    /// # Errors
    /// The Namespace cannot be read, and was not before. A missing permission is not an error: the name identifies
    /// the owner then.
    pub async fn namespace_owner(&self, namespace: &str) -> Result<Owner, UnknownOwner> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.get(namespace).filter(|known| Instant::now() < known.until) {
            return known.owner.clone();
        }
        let before = known.remove(namespace).and_then(|known| known.owner.ok());
        let (owner, pause) = match self.read(namespace).await {
            Ok(uid) => {
                // A permission that is taken away changes no UID.
                let uid = uid.or_else(|| before.and_then(|owner| owner.uid));
                let kept = if uid.is_some() { KEPT } else { KEPT_UNREAD };
                (Ok(Owner { namespace: namespace.to_owned(), uid }), kept)
            }
            Err(error) => (before.ok_or(error), PAUSE),
        };
        known.insert(namespace.to_owned(), KnownOwner { owner: owner.clone(), until: Instant::now() + pause });
        owner
    }

    /// The UID of a Namespace; `None` if the process may not read it, as the Go programs. A review shows that, so that
    /// no request is refused.
    async fn read(&self, namespace: &str) -> Result<Option<String>, UnknownOwner> {
        let get = ResourceAttributes {
            verb: Some("get".to_owned()),
            resource: Some("namespaces".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        if access::is_allowed(&self.client, get).await == Some(false) {
            return Ok(None);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        match Box::pin(api.get_metadata(namespace)).await {
            Ok(object) => Ok(object.metadata.uid),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
            Err(error) => Err(UnknownOwner { namespace: namespace.to_owned(), problem: chain(&error) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};

    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    /// The answer to an access review.
    const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    /// An API server that responds with a code, and counts reads. It does not serve reviews, unless a denial was chosen.
    #[derive(Clone)]
    struct Server(Arc<(AtomicU16, AtomicUsize, AtomicBool)>);

    impl Server {
        fn answering(code: u16) -> Self {
            Self(Arc::new((AtomicU16::new(code), AtomicUsize::new(0), AtomicBool::new(false))))
        }

        fn owners(&self) -> VmOwners {
            let state = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let is_review = request.uri().path() == REVIEW;
                let is_denial = is_review && state.0.2.load(SeqCst);
                if !is_review {
                    assert_eq!(request.uri().path(), "/api/v1/namespaces/team-a");
                    state.0.1.fetch_add(1, SeqCst);
                }
                let code = match (is_review, is_denial) {
                    (true, true) => 201,
                    (true, false) => 404,
                    (false, _) => state.0.0.load(SeqCst),
                };
                let body = match code {
                    201 => json!({"spec": {}, "status": {"allowed": false}}),
                    200 => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "uid": "u"}}),
                    _ => {
                        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": "no"})
                    }
                };
                let answer = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                async move { answer }
            });
            VmOwners::new(&Client::new(service, "default"))
        }

        fn answers(&self, code: u16) {
            self.0.0.store(code, SeqCst);
        }

        fn reads(&self) -> usize {
            self.0.1.load(SeqCst)
        }
    }

    #[rstest]
    #[case::readable(200, Some(Some("u")))]
    #[case::forbidden_as_for_the_go_programs(403, Some(None))]
    #[case::not_served(404, Some(None))]
    #[case::unauthorized(401, None)]
    #[case::throttled(429, None)]
    #[case::broken(500, None)]
    #[case::away(503, None)]
    #[tokio::test(start_paused = true)]
    async fn an_owner_has_its_name_only_if_the_process_may_not_read_its_uid(
        #[case] code: u16,
        #[case] expected: Option<Option<&str>>,
    ) {
        let owner = Server::answering(code).owners().namespace_owner("team-a").await.ok();
        assert_eq!(owner.as_ref().map(|owner| owner.uid.as_deref()), expected);
        assert!(owner.is_none_or(|owner| owner.namespace == "team-a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_may_not_be_read_is_not_asked_for() {
        let server = Server::answering(200);
        server.0.2.store(true, SeqCst);
        let owners = server.owners();
        assert_eq!(owners.namespace_owner("team-a").await.unwrap().marker(), "team-a");
        assert_eq!(server.reads(), 0, "no request is refused");
        server.0.2.store(false, SeqCst);
        sleep(KEPT_UNREAD).await;
        assert_eq!(
            owners.namespace_owner("team-a").await.unwrap().marker(),
            "u",
            "the permission was granted meanwhile"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_read_once_for_many_machines_and_again_later() {
        let server = Server::answering(403);
        let owners = server.owners();
        let many = futures::future::join_all((0..50).map(|_| owners.namespace_owner("team-a"))).await;
        assert!(many.iter().all(|owner| owner.as_ref().unwrap().uid.is_none()));
        assert_eq!(server.reads(), 1);
        server.answers(200);
        sleep(KEPT_UNREAD).await;
        assert_eq!(
            owners.namespace_owner("team-a").await.unwrap().marker(),
            "u",
            "the permission was granted meanwhile"
        );
        assert_eq!(server.reads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_repeated_soon_and_takes_back_nothing_that_is_known() {
        let server = Server::answering(503);
        let owners = server.owners();
        let many = futures::future::join_all((0..50).map(|_| owners.namespace_owner("team-a"))).await;
        assert!(many.iter().all(Result::is_err), "{many:?}");
        assert_eq!(server.reads(), 1);
        sleep(PAUSE).await;
        server.answers(200);
        assert_eq!(owners.namespace_owner("team-a").await.unwrap().marker(), "u");
        for code in [503, 403] {
            server.answers(code);
            sleep(KEPT).await;
            assert_eq!(owners.namespace_owner("team-a").await.unwrap().marker(), "u");
        }
        assert_eq!(server.reads(), 4);
    }
}
