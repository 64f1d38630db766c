"""What servers of webhooks and aggregated APIs share.

`responses` are answers to admission reviews, `lookups` the objects that webhooks read. `frontproxy` tells who
asks: the API server's front proxy vouches for its users. `rights` asks the API server what they may. `gate`
lets in who may, `https` serves with certificates that change, `tls` restricts versions and ciphers.
"""
