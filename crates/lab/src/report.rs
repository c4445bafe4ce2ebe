//! stub
pub(crate) fn html(_: &sluice_api::results::Results) -> String {
    String::new()
}
