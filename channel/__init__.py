"""The control plane's two ends over real sockets: a controller's sending half, brokers that answer, and their network.

``channel.network`` moves frames, ``channel.controller`` decides and sends, ``channel.broker`` receives and answers.
Every component takes its clock and its settings as arguments. Bytes and messages are ``kproto``'s.
"""
