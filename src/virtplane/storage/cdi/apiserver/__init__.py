"""cdi-apiserver: the webhooks of data volumes, and the aggregated API of upload tokens.

`server` serves both. `reviews` finds the webhook by its path: `data_volumes` (with `claims_asked_for` and
`sources`, whose URLs `addresses` checks), `mutation` (clone tokens), `claims` (the completion of claims),
`crons`, `populators`, `transfers`, `installation`. `requests` reads a request, `decoding` says what does not
fit, `answers` refuses as CDI does. `uploads` answers requests for upload tokens, `discovery` describes that
API. `signing` keeps the key of the tokens.
"""
