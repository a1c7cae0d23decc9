//! Checks permissions with the API server, so that no request is sent that it would refuse.

use k8s_openapi::{
    api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};

/// True if this process may send a request; `None` if the API server does not review it. Every user may request a review
/// (ClusterRole `system:basic-user`).
pub async fn is_allowed(client: &Client, request: ResourceAttributes) -> Option<bool> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(request), ..Default::default() };
    let review = SelfSubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = Box::pin(api.create(&PostParams::default(), &review)).await;
    Some(answer.ok()?.status?.allowed)
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::allowed(201, json!({"spec": {}, "status": {"allowed": true}}), Some(true))]
    #[case::denied(201, json!({"spec": {}, "status": {"allowed": false}}), Some(false))]
    #[case::without_a_status(201, json!({"spec": {}}), None)]
    #[case::reviews_are_not_allowed(403, json!({"kind": "Status", "status": "Failure", "code": 403}), None)]
    #[case::reviews_are_not_served(404, json!({"kind": "Status", "status": "Failure", "code": 404}), None)]
    #[case::away(503, json!({"kind": "Status", "status": "Failure", "code": 503}), None)]
    #[tokio::test]
    async fn only_an_answer_of_the_api_server_counts(
        #[case] code: u16,
        #[case] answer: Value,
        #[case] expected: Option<bool>,
    ) {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            assert_eq!(request.uri().path(), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
            let body = Body::from(answer.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body);
            async move { response }
        });
        let request = ResourceAttributes { verb: Some("list".to_owned()), ..ResourceAttributes::default() };
        assert_eq!(is_allowed(&Client::new(service, "default"), request).await, expected);
    }
}
